"""The sink `delta_once`: rows to Parquet files, and files and offsets into one Delta commit."""
