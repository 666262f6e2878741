"""Two drivers with one ``appId`` and one table, paused and resumed in turn: each record must come once all the same."""
