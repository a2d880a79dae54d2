"""The heavy tensor operations."""
