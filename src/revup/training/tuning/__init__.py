"""Searching for settings on validation data."""
