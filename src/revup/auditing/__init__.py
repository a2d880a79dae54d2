"""Wrong labels: the list of issues, its review in a browser, and the corrected file."""
