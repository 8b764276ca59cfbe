"""Imports notes of other programs as blocks of a workspace."""
