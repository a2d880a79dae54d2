"""Training a model to files."""
