"""The few requests of Kafka's protocol that a sampler needs, batched over all partitions of a broker.

Why not a client library: over 10,000 partitions librdkafka's admin client and consumer take some five seconds for the
same answers, one object and one future for each partition; these requests take a few tenths. Fixed versions, all of
them in Kafka 3.0 and newer; layouts from Kafka's message definitions (clients/src/main/resources/common/message).
"""
