"""The trained model: loading, prediction, evaluation, generation and inspection."""
