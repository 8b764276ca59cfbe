"""What only the tests of this repository use: engines over doubles, sample values and further conformance suites."""
