"""The demo: real flights through broker, Spark and Delta, while the job is killed again and again."""
