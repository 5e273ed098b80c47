"""Messages to columns: descriptors, headers and payloads of a chunk become one Arrow record batch.

`columns.py` lists the columns of the data source. `row_decoder.py` makes them and is the place to begin: it decodes
each distinct head once (`heads.py`, `head_table.py`), cuts out values that differ in every message
(`volatile_values.py`), or reads whole headers by their shape (`varying_headers.py`). `payloads.py` and `sparkplug.py`
turn payloads into JSON text for silver tables. Nothing here needs Spark.
"""
