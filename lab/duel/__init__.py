"""Two drivers with one ``appId`` and one target, paused and resumed in turn: each record must arrive once."""
