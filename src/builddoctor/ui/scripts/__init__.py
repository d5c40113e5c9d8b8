"""A plan written as files that build without builddoctor: script, Dockerfile, env file, batch job, workflow. Pure."""
