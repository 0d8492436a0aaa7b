"""One HTTP application of several tables: rows in, answers and errors out. The rooms beside it have the rows."""
