"""Metrics to eyes: Streamlit pages over the lake's public views, for whoever is on call at 03:00."""
