"""Two drivers with one ``appId`` and one result, paused and resumed in turn: each record must come once even so."""
