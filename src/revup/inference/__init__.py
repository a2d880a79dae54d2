"""The trained model and what is asked of it."""
