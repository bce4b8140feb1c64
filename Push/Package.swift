// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that nobody who stores files resolves an HTTP server or a database.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
]

let package = Package(
  name: "OpenDynamicsPush",
  platforms: [.macOS(.v15), .iOS(.v18)],
  dependencies: [
    .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
    .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
  ],
  targets: [
    .target(
      name: "PushWire", dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
      exclude: ["push.proto"], swiftSettings: strict),
    .target(name: "PushChannels", dependencies: ["PushWire"], swiftSettings: strict),
    .target(
      name: "PushRelay", dependencies: ["PushWire", .product(name: "GRDB", package: "GRDB.swift")],
      swiftSettings: strict),
    .target(name: "PushTestSupport", path: "Tests/PushTestSupport", swiftSettings: strict),
    .testTarget(name: "PushWireTests", dependencies: ["PushWire"], swiftSettings: strict),
    .testTarget(
      name: "PushChannelsTests", dependencies: ["PushChannels", "PushWire", "PushTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "PushRelayTests", dependencies: ["PushRelay", "PushWire", "PushTestSupport"],
      swiftSettings: strict),
  ]
)
