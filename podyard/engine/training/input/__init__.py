"""The input of training: files of examples, which of them a step gets, what is done to them, and
reading ahead."""
