"""KEDA's external scaler over gRPC, answered from what :mod:`alerts.control.advisor` advises."""
