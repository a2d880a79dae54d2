"""The tables that compare systems across experiments, made from the raw runs in docs/results/runs."""
