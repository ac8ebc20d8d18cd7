"""Pages of bills, budgets and invoices."""
