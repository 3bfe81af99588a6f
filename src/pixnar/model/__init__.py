"""model: a query goes through an encoder once; every slot of a docid is scored against one vector per phrase."""
