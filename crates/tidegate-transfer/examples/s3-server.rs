//! A server that speaks S3, for experiments: the crate `s3s-fs` on a folder, whose folders are its buckets.
//!
//!     AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… s3-server ADDRESS:PORT FOLDER
//!
//! It answers whoever has these until it is killed.

use std::env;
use std::error::Error;
use std::net::SocketAddr;

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [address, folder] = &words[..] else {
        return Err("write: s3-server ADDRESS:PORT FOLDER".into());
    };
    let said = |name| env::var(name).map_err(|error| format!("{name}: {error}"));
    let (id, secret) = (said("AWS_ACCESS_KEY_ID")?, said("AWS_SECRET_ACCESS_KEY")?);
    let files = s3s_fs::FileSystem::new(folder).map_err(|error| format!("{folder}: {error:?}"))?;
    let mut service = S3ServiceBuilder::new(files);
    service.set_auth(SimpleAuth::from_single(id, secret));
    let service = service.build();
    let listener = TcpListener::bind(address.parse::<SocketAddr>()?).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            // Whoever goes away in the middle is nothing to it.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}
