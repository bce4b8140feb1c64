import ServiceValues

/// What a broker takes (BROKER-PROTOCOL.md, "Limits"). Times are milliseconds.
package struct BrokerLimits: Sendable, Equatable {
  /// Of a message to a client, and of one that a client sends.
  package var frameByteCountMax = 1 << 20
  package var receivedFrameByteCountMax = 640 << 10
  /// Elements of all lists in a message that a client sends: a registration with a list too long is told so, up to here.
  package var elementCountMax = 256
  package var beginningTime: UInt64 = 10_000
  package var connectionCountMax = 1024
  /// Of one sandbox.
  package var sandboxConnectionCountMax = 64
  /// Connections that did not enrol yet; with one more, who has the most of them loses one.
  package var beginningCountMax = 64
  /// Connections of clients that are no apps.
  package var attendingCountMax = 256
  package var appCountMax = 1000
  /// Of them, those that nobody has approved.
  package var unapprovedCountMax = 200
  /// What is done with new ids.
  package var plainApps = BrokerAdmission.open(8)
  package var sandboxedApps = BrokerAdmission.ask
  /// Connections that wait for approval, of an origin and in all.
  package var pendingOfOriginMax = 8
  package var pendingCountMax = 64
  package var serviceCountMax = 100
  package var serverCountMax = AppServer.countMax
  package var callerCountMax = Caller.countMax
  package var definitionByteCountMax = 65_536
  package var iconByteCountMax = 65_536
  /// Of a registration as it is encoded, with everything that is in it.
  package var registrationByteCountMax = 512 << 10
  /// Registrations of an app, or a sandbox, at once; after those one each *registration time*.
  package var registrationBurstMax: UInt64 = 30
  package var registrationTime: UInt64 = 1000
  package var nameByteCountMax = 256
  package var argumentCountMax = 64
  package var argumentByteCountMax = 4096
  package var questionCountMax = 256
  package var watchCountMax = 64
  /// Watches of all connections: each remembers what it told of each app.
  package var watchTotalMax = 2048
  package var ruleCountMax = 1000
  /// Of all rules as they are encoded.
  package var ruleByteCountMax = 512 << 10
  package var unlockTime: UInt64 = 30_000
  package var startTime: UInt64 = 10_000
  /// Programs that were started and did not enrol yet.
  package var startCountMax = 8
  /// How long the compositor may take for one change.
  package var compositorTime: UInt64 = 10_000
  /// Bytes of a page of providers or apps, about: a page has at least one of them.
  package var pageByteCount = 256 << 10
  /// Bytes that wait to be written to a connection.
  package var queuedByteCountMax = 4 << 20
  /// The same, to all connections of a sandbox, or of a process without one.
  package var ownerQueuedByteCountMax = 16 << 20

  package init() {}
}
