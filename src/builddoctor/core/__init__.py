"""What builddoctor talks about, as frozen typed structs: units, phases, limits, requests, summaries. No I/O."""
