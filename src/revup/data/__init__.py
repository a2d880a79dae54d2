"""From files to batches: events, readers, knowledge, encoding, corpora."""
