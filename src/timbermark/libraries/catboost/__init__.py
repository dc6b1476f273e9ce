"""CatBoost's classifiers, regressors and rankers, opened, closed and kept in files, bit for bit."""
