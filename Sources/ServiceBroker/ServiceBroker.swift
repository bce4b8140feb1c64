/// Where a broker keeps what it knows, and where it listens.
public struct ServiceBrokerPlaces: Sendable {}
