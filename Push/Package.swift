// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that nobody who stores files resolves an HTTP server or a database.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
]

let nio: [Target.Dependency] = [
  .product(name: "NIOCore", package: "swift-nio"),
  .product(name: "NIOPosix", package: "swift-nio"),
  .product(name: "NIOHTTP1", package: "swift-nio"),
  .product(name: "NIOWebSocket", package: "swift-nio"),
  .product(name: "NIOSSL", package: "swift-nio-ssl"),
]
let crypto = Target.Dependency.product(name: "Crypto", package: "swift-crypto")
let log = Target.Dependency.product(name: "Logging", package: "swift-log")
let database = Target.Dependency.product(name: "GRDB", package: "GRDB.swift")

let package = Package(
  name: "OpenDynamicsPush",
  platforms: [.macOS(.v15), .iOS(.v18)],
  products: [
    .library(name: "PushClient", targets: ["PushClient"]),
    .library(name: "PushTesting", targets: ["PushTesting"]),
    .executable(name: "dynamics-push", targets: ["dynamics-push"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
    .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
    .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
    .package(url: "https://github.com/apple/swift-crypto", from: "4.5.0"),
    .package(url: "https://github.com/apple/swift-certificates", from: "1.21.0"),
    .package(url: "https://github.com/apple/swift-asn1", from: "1.7.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
    .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
    .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
    .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: []),
  ],
  targets: [
    .target(
      name: "PushWire", dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
      exclude: ["push.proto"], swiftSettings: strict),
    .target(name: "PushChannels", dependencies: ["PushWire"], swiftSettings: strict),
    .target(
      name: "PushClient", dependencies: ["PushChannels", "PushWire", database, crypto, log] + nio,
      swiftSettings: strict),
    .target(
      name: "PushRelay",
      dependencies: [
        "PushWire", database, crypto, log,
        .product(name: "X509", package: "swift-certificates"),
        .product(name: "SwiftASN1", package: "swift-asn1"),
        .product(name: "CoreMetrics", package: "swift-metrics"),
        .product(name: "HTTPTypes", package: "swift-http-types"),
        .product(name: "HummingbirdCore", package: "hummingbird"),
        .product(name: "HummingbirdTLS", package: "hummingbird"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
        .product(name: "AsyncHTTPClient", package: "async-http-client"),
      ] + nio, swiftSettings: strict),
    .target(name: "PushTesting", dependencies: ["PushRelay", "PushWire", log] + nio, swiftSettings: strict),
    .executableTarget(
      name: "dynamics-push",
      dependencies: [
        "PushRelay", "PushClient", "PushWire", log,
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
        .product(name: "Configuration", package: "swift-configuration"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
        .product(name: "AsyncHTTPClient", package: "async-http-client"),
      ] + nio, swiftSettings: strict),
    .executableTarget(
      name: "NewsApp", dependencies: ["PushClient"], path: "Examples/NewsApp", swiftSettings: strict),
    .executableTarget(
      name: "push-bench",
      dependencies: [
        "PushClient", "PushWire", .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ] + nio, path: "Benchmarks/push-bench", swiftSettings: strict),
    .target(name: "PushTestSupport", path: "Tests/PushTestSupport", swiftSettings: strict),
    .testTarget(name: "PushWireTests", dependencies: ["PushWire"], swiftSettings: strict),
    .testTarget(
      name: "PushChannelsTests", dependencies: ["PushChannels", "PushWire", "PushTestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "PushTests",
      dependencies: [
        "PushClient", "PushTesting", "PushTestSupport", database,
        .product(name: "NIOEmbedded", package: "swift-nio"),
      ] + nio, swiftSettings: strict),
    .testTarget(
      name: "PushRelayTests", dependencies: ["PushRelay", "PushWire", "PushTestSupport"],
      swiftSettings: strict),
  ]
)
