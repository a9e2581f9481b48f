"""The ids that mean the same in every tokenizer, so that models and searches need not ask which one it is."""

PAD, UNK, SOS, EOS, SEP, MASK = range(6)

SPECIALS = ("<pad>", "<unk>", "<sos>", "<eos>", "[SEP]", "[MASK]")
"""Their printed names, in the order of their ids. A text that contains such a name does not become the id."""

SILENT = frozenset({PAD, SOS, EOS})
"""What decoding leaves out: these say where a text begins and ends, and are no part of it."""
