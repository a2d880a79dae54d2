"""revup: represent, label and write sequences of events when the labels are few, soft or wrong."""

__version__ = "0.1.0"
