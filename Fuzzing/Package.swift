// swift-tools-version: 6.2
import PackageDescription

// A package of its own: its build is instrumented throughout, and nothing of it comes near the library. `run` builds it, with
// the flags that a manifest cannot give to the packages it depends on.
let package = Package(
  name: "Fuzzing",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "OpenDynamics", path: "..", traits: ["Services"])],
  targets: [
    .systemLibrary(name: "CLibFuzzer"),
    .executableTarget(
      name: "fuzz",
      dependencies: [
        "CLibFuzzer",
        .product(name: "SodiumPrimitives", package: "OpenDynamics"),
        .product(name: "EncryptedFile", package: "OpenDynamics"),
        .product(name: "ContainerStore", package: "OpenDynamics"),
        .product(name: "ServiceValues", package: "OpenDynamics"),
        .product(name: "ServiceWire", package: "OpenDynamics"),
        .product(name: "OpenDynamicsTesting", package: "OpenDynamics"),
        .product(name: "TestSupport", package: "OpenDynamics"),
      ],
      exclude: ["FuzzTests.swift"],
      swiftSettings: [
        .swiftLanguageMode(.v6),
        .treatAllWarnings(as: .error),
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("InternalImportsByDefault"),
      ]),
  ]
)
