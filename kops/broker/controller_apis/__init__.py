"""The APIs of a controller's listener: what Kafka's ControllerApis does."""
