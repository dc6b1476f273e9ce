"""The paper's experiments: its data sets, its protocol, its tables and figures."""
