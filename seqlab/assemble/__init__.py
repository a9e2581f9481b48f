"""Recipe to tokenizer, data and model: the one place where parts are put together."""
