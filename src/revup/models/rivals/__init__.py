"""Rivals: published ways of learning from wrong or few labels, as methods of the tagger or as models of their own.

`settings` declares the methods, `losses` has their equations, `methods` the loss of a training step, `stated` what is
estimated before training (labels as they stand, confident learning, the confusion matrix), `logistic` and `propagation`
are models, `search` lists the values that an experiment may try for each system.
"""
