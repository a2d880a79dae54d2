"""Revup inside other tools: the Hugging Face Hub, scikit-learn."""
