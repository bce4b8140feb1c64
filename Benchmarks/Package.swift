// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
]

// A package of its own, so that nothing here is built with the library or can reach past its public interface.
let package = Package(
  name: "Benchmarks",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "OpenDynamics", path: ".."),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
  ],
  targets: [
    .executableTarget(
      name: "ladder",
      dependencies: [
        .product(name: "SodiumPrimitives", package: "OpenDynamics"),
        .product(name: "EncryptedFile", package: "OpenDynamics"),
        .product(name: "ContainerStore", package: "OpenDynamics"),
        .product(name: "SecureFiles", package: "OpenDynamics"),
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: settings),
    .executableTarget(
      name: "random-io",
      dependencies: [
        .product(name: "SodiumPrimitives", package: "OpenDynamics"),
        .product(name: "ContainerStore", package: "OpenDynamics"),
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: settings),
  ]
)
