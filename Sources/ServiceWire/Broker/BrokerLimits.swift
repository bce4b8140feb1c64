/// What a broker takes (SERVICE-PROTOCOL.md, "Limits"). Times are milliseconds.
package struct BrokerLimits: Sendable, Equatable {
  package var frameByteCountMax = 1 << 20
  package var beginningTime: UInt64 = 10_000
  package var connectionCountMax = 1024
  /// Connections that did not enrol yet; the oldest goes when there is one more.
  package var beginningCountMax = 64
  package var appCountMax = 1000
  package var serviceCountMax = 100
  package var definitionByteCountMax = 65_536
  package var iconByteCountMax = 65_536
  package var nameByteCountMax = 256
  package var argumentCountMax = 64
  package var argumentByteCountMax = 4096
  package var questionCountMax = 256
  package var watchCountMax = 64
  package var ruleCountMax = 1000
  package var unlockTime: UInt64 = 30_000
  package var startTime: UInt64 = 10_000
  package var certificateLife: UInt64 = 24 * 3600 * 1000
  /// Bytes of a page of providers or apps, about.
  package var pageByteCount = 256 << 10

  package init() {}
}
