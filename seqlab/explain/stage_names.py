"""The stages of a model in words: what each is, and how its name is written in titles and legends."""

MEANINGS = {
    "embedding": "token embeddings",
    "positions": "embeddings plus positions",
    "x": "input of the layer",
    "memory": "encoder states",
    "enters": "input, then previous states",
    "sum": "output plus residual input",
    "features": "input of the output layer",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "score": "scaled scores",
    "weights": "attention weights after mask and softmax",
    "heads": "output of each head",
    "inner": "hidden layer of the feed-forward network",
    "output": "output of the block",
    "i": "input gate",
    "f": "forget gate",
    "g": "candidate",
    "o": "output gate",
    "c": "cell state",
    "h": "hidden state",
    "r": "reset gate",
    "u": "update gate",
    "z": "update gate",
    "n": "candidate",
    "halt": "halting probability",
    "ponder": "number of steps",
    "belief": "belief about the hidden state",
    "posterior": "posterior of the hidden states",
    "logits": "logits",
}
PARTS = {
    "attention": "self-attention",
    "cross": "cross-attention",
    "feed_forward": "feed-forward network",
    "first": "first residual connection",
    "second": "second residual connection",
    "third": "third residual connection",
    "bilm": "bidirectional language model",
}
OF_A_BLOCK = ("attention", "cross", "feed_forward", "first", "second", "third", "output")


def meaning(name: str) -> str:
    """Return what a stage holds, such as 'hidden state' for decoder.0.h."""
    return MEANINGS.get(name.rpartition(".")[2], "")


def label(name: str) -> str:
    """Return a stage or layer in words: 'decoder block 3, cross-attention' for decoder.2.cross."""
    if name.startswith("decoder.attention"):
        name = name.replace("attention", "cross", 1)
    is_block = any(part in OF_A_BLOCK for part in name.split("."))
    words: list[str] = []
    for part in name.split("."):
        if part.isdecimal():
            words[-1:] = [
                f"{' '.join(words[-1:])} {'block' if is_block else 'layer'} {int(part) + 1}".strip()
            ]
        else:
            words.append(PARTS.get(part) or MEANINGS.get(part, part))
    return ", ".join(words)
