"""The user's files, prepared for training: a codec learnt, rows stored, a part held out."""
