"""Many runs that make a table: which to do, who does them, and what they say together.

Plan(cases, seeds, search) -> Run ...          plan: what is to be run, as far as it is known yet
Shelf: runs/, records/, locks/                 shelf: what is done, failed or being done, in plain folders
work(plan, shelf)                              work: take the next run, train, record, go on
table(plan, records) -> Markdown, CSV, LaTeX   tables, write: mean, deviation, significance, published figures
"""
