"""Files and folders: opening, atomic writing, locks, digests, archives."""
