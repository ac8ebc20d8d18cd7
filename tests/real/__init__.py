"""The tests of `make real`, file by file, as far as a time limit allows
(docs/internals/tests.md)."""
