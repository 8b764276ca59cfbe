"""The steps of a build. All are pure but `collect`."""
