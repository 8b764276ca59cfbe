"""Measures quality on folders of questions with known answers."""
