"""A blob store in an S3 bucket; the only folder that names botocore."""
