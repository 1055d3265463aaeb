"""What the pages beyond the first ones ask of the lake: SELECTs in Spark's dialect over public views and tables."""
