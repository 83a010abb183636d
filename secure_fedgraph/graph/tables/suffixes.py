"""How the names of tables end."""

SEPARATED = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TYPED = (".parquet", ".feather", ".arrow")
SUFFIXES = (*SEPARATED, *TYPED)
