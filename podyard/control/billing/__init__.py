"""Usage, bills, invoices, accounts, commitments, budgets, costs, exports."""
