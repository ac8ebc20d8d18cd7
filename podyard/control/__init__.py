"""Use cases: plain functions `f(uow, ...)`, each one atomic change."""
