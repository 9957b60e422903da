"""Many training runs that fill one table.

Plan(cases, seeds, search) -> Run ...        plan, search, rows: runs of a table
RunStore: run folders, records/, locks/      store, record, locks: finished, failed, running runs
run_pending(job), Workers(job, count)        workers: take the next run, train it, record it
table(stored) -> Markdown, CSV, LaTeX, HTML  tables, formats: means, significance, published figures
"""
