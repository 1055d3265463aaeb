"""The script that Streamlit runs, in a folder of its own.

What stands in ``pages`` beside it Streamlit takes for pages, and an address that names one of them for the wish to run
that very file.
"""
